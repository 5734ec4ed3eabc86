package main

import (
	"context"
	"crypto/ed25519"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"conform/harness/certify"
	"conform/harness/report"
	"conform/spec"
)

func (a *app) keygenCommand() *cobra.Command {
	var out string
	cmd := &cobra.Command{
		Use:   "keygen --out K",
		Short: "Make a key pair that signs certificates",
		Long: `Make an Ed25519 key pair: K, which signs and is for nobody else's eyes, and K.pub,
which those get who check what it signed. Neither file may exist.`,
		Args: noArgs,
		RunE: func(*cobra.Command, []string) error {
			if out == "" {
				return usage("--out is missing", "the file for the private key", "")
			}
			id, err := certify.GenerateKey(out)
			if err != nil {
				return unreadable(out, "a file that does not exist yet", err)
			}
			fmt.Fprintf(a.stdout, "%s signs, keep it to yourself; %s.pub is for whoever checks\nkey %s\n", out, out, id)
			return nil
		},
	}
	cmd.Flags().StringVarP(&out, "out", "o", "", "the `FILE` for the private key")
	return cmd
}

// certifyFlags are the flags of conform certify as they were given.
type certifyFlags struct {
	profile, quarters, out, format string
	keys                           []string
	dryRun                         bool
}

func (a *app) certifyCommand() *cobra.Command {
	var f certifyFlags
	cmd := &cobra.Command{
		Use:   "certify RUN... --key K --out FILE",
		Short: "Make a signed certificate from saved runs",
		Long: `Judge saved runs again and, if they have all that a profile asks for, put them into
one signed file that anybody can check offline with conform verify. RUN is a folder
that conform run --out made; name every one that was made, failed and aborted ones
too. The same runs and keys give the same bytes.

With --dry-run nothing is written: it tells the seeds that this build must be run
with in this quarter (any first run of it will do), and what is still missing.

Exit status: 1 if an attempt failed or was unproven, 2 if something has not been run
yet. docs/certification.md tells the whole way.`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) == 0 {
				return usage("conform certify was given no run", "folders that conform run --out made", "see conform certify --help")
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error { return a.certify(cmd.Context(), &f, args) },
	}
	fl := cmd.Flags()
	fl.StringVar(&f.profile, "profile", "reference-quick", "what the certificate needs: the name of a built-in profile ("+strings.Join(profileNames(), ", ")+"), or a .yaml file")
	fl.StringArrayVar(&f.keys, "key", nil, "`FILE` of a private key that signs; repeatable")
	fl.StringVarP(&f.out, "out", "o", "", "the `FILE` to write to")
	fl.StringVar(&f.quarters, "quarters", "", "`FILE` with the published value of each quarter (default: what is built in)")
	fl.BoolVar(&f.dryRun, "dry-run", false, "tell the seeds and what is missing, write nothing")
	formatFlag(cmd, &f.format)
	return cmd
}

func profileNames() []string {
	var names []string
	for _, p := range certify.Profiles() {
		names = append(names, p.Name)
	}
	return names
}

func (a *app) certify(ctx context.Context, f *certifyFlags, runs []string) error {
	in := certify.Input{Runs: runs}
	var err error
	if in.Profile, err = certify.FindProfile(f.profile); err != nil {
		return unreadable(f.profile, "the name of a profile, or a .yaml file of one", err)
	}
	if in.Quarters, err = quarters(f.quarters); err != nil {
		return err
	}
	if f.dryRun {
		return a.previewCertificate(ctx, in, f.format)
	}
	if f.out == "" || len(f.keys) == 0 {
		return usage("--key or --out is missing", "both, or --dry-run", "conform keygen makes a key")
	}
	for _, path := range f.keys {
		key, err := certify.ReadPrivateKey(path)
		if err != nil {
			return unreadable(path, "a private key that conform keygen made", err)
		}
		in.Keys = append(in.Keys, key)
	}
	rep, err := certify.Certify(ctx, in, f.out)
	if short, ok := errors.AsType[*certify.ShortfallError](err); ok {
		return a.shortfall(short, f.format)
	} else if err != nil {
		return ofCertificates(f.out, err)
	}
	if f.format == formatJSON {
		return report.Encode(a.stdout, rep)
	}
	fmt.Fprintf(a.stdout, "certificate  %s\n", f.out)
	return a.claims(rep)
}

// quarters are the published values in a file, or the built-in ones.
func quarters(path string) (certify.Quarters, error) {
	if path == "" {
		return certify.BuiltinQuarters(), nil
	}
	q, err := certify.ReadQuarters(path)
	if err != nil {
		return nil, unreadable(path, "lines QUARTER: VALUE with 64 hex digits", err)
	}
	return q, nil
}

func (a *app) previewCertificate(ctx context.Context, in certify.Input, format string) error {
	rep, short, err := certify.Preview(ctx, in)
	if err != nil {
		return ofCertificates("", err)
	}
	if short != nil {
		a.status = shortStatus(short)
	}
	if format == formatJSON {
		return report.Encode(a.stdout, struct {
			Report  *certify.Report         `json:"report"`
			Lacking *certify.ShortfallError `json:"lacking,omitempty"`
		}{rep, short})
	}
	fmt.Fprintf(a.stdout, "subject  %s\nbuild    %s\nquarter  %s\nseeds    %s\n", rep.Subject.Build.Engine, rep.Build, rep.Quarter.Name,
		strings.Trim(fmt.Sprint(rep.Quarter.Seeds), "[]"))
	if short == nil {
		fmt.Fprintf(a.stdout, "nothing is missing for a certificate of the profile %s\n", rep.Profile)
		return nil
	}
	return a.shortfall(short, formatText)
}

// shortStatus is the exit status where something is missing for a certificate.
func shortStatus(short *certify.ShortfallError) int {
	if short.Failed {
		return spec.Fail.ExitStatus()
	}
	return spec.Inconclusive.ExitStatus()
}

// shortfall tells what is missing for a certificate.
func (a *app) shortfall(short *certify.ShortfallError, format string) error {
	a.status = shortStatus(short)
	if format == formatJSON {
		return report.Encode(a.stdout, short)
	}
	fmt.Fprintf(a.stdout, "no certificate; missing:\n")
	for _, s := range short.Lacks {
		fmt.Fprintf(a.stdout, "  - %s\n", report.Clean(s))
	}
	return nil
}

// verifyFlags are the flags of conform verify as they were given.
type verifyFlags struct {
	trust                         []string
	profile, quarters, at, format string
	sign, out                     string
}

func (a *app) verifyCommand() *cobra.Command {
	var f verifyFlags
	cmd := &cobra.Command{
		Use:   "verify FILE --trust K.pub",
		Short: "Check a certificate offline, by judging its traces again",
		Long: `Check a certificate, offline and on any machine: signatures, digests, scenarios and
seeds that its profile asks for, faults that fired, planted defects that were found,
every trace judged again and compared, validity. It says what the certificate claims
and what it does not. Nothing of the file is run, and nothing is written outside a
temporary folder. With --countersign a certificate that holds is written to --out with
one more signature: so a programme signs beside a vendor.

Exit status: 0 if it holds, 1 if it is refused.`,
		Args: exactly(1, "one certificate"),
		RunE: func(cmd *cobra.Command, args []string) error { return a.verify(cmd.Context(), &f, args[0]) },
	}
	fl := cmd.Flags()
	fl.StringArrayVar(&f.trust, "trust", nil, "`FILE` of a public key that is trusted, or of roots with names, a threshold and validity; repeatable")
	fl.StringVar(&f.profile, "profile", "", "the profile that it must be of: a name, or a .yaml file that you trust (default: the built-in one that it names)")
	fl.StringVar(&f.quarters, "quarters", "", "`FILE` with the published value of each quarter (default: what is built in)")
	fl.StringVar(&f.sign, "countersign", "", "`FILE` of a private key that signs the certificate too, if it holds")
	fl.StringVarP(&f.out, "out", "o", "", "the `FILE` to write the countersigned certificate to")
	fl.StringVar(&f.at, "at", "", "the day on which it must hold, such as 2026-12-31 (default: now)")
	formatFlag(cmd, &f.format)
	return cmd
}

func (f *verifyFlags) check() (c certify.Check, err error) {
	if len(f.trust) == 0 {
		return c, usage("--trust is missing", "a file with a public key, or a list of roots", "whoever signed the certificate has published it")
	}
	if c.Trust, err = certify.ReadTrust(f.trust...); err != nil {
		return c, unreadable(strings.Join(f.trust, ", "), "a public key or a list of roots", err)
	}
	if c.Quarters, err = quarters(f.quarters); err != nil {
		return c, err
	}
	if f.profile != "" {
		p, err := certify.FindProfile(f.profile)
		if err != nil {
			return c, unreadable(f.profile, "the name of a profile, or a .yaml file of one", err)
		}
		c.Profile = &p
	}
	if f.at != "" {
		if c.At, err = time.Parse(time.DateOnly, f.at); err != nil {
			return c, usage(fmt.Sprintf("--at is %q", f.at), "a day such as 2026-12-31", "")
		}
		c.At = c.At.AddDate(0, 0, 1).Add(-time.Nanosecond)
	}
	return c, nil
}

func (a *app) verify(ctx context.Context, f *verifyFlags, path string) error {
	c, err := f.check()
	if err != nil {
		return err
	}
	defer rarelyCollecting(certificateMemory)()
	rep, err := f.verify(ctx, path, c)
	refusal, refused := errors.AsType[*certify.Refusal](err)
	switch {
	case refused:
		a.status = spec.Fail.ExitStatus()
	case err != nil:
		return ofCertificates(path, err)
	}
	if f.format == formatJSON {
		return report.Encode(a.stdout, struct {
			Accepted bool             `json:"accepted"`
			Refusal  *certify.Refusal `json:"refusal,omitempty"`
			Report   *certify.Report  `json:"report,omitempty"`
		}{!refused, refusal, rep})
	}
	if refused {
		fmt.Fprintf(a.stdout, "REFUSED  %s\n  %s: %s\n", path, refusal.Code, report.Clean(refusal.Error()))
		return nil
	}
	fmt.Fprintf(a.stdout, "VALID  %s\n", path)
	return a.claims(rep)
}

// verify checks a certificate, and signs it where that was asked for.
func (f *verifyFlags) verify(ctx context.Context, path string, c certify.Check) (*certify.Report, error) {
	if (f.sign == "") != (f.out == "") {
		return nil, usage("--countersign or --out is missing", "both or neither", "")
	}
	if f.sign == "" {
		return certify.Verify(ctx, path, c)
	}
	key, err := certify.ReadPrivateKey(f.sign)
	if err != nil {
		return nil, unreadable(f.sign, "a private key that conform keygen made", err)
	}
	return certify.Countersign(ctx, path, c, []ed25519.PrivateKey{key}, f.out)
}

// claims tells what a certificate claims. Names in it are a stranger's: none may move
// the cursor of whoever reads them.
func (a *app) claims(rep *certify.Report) error {
	var b strings.Builder
	if err := rep.Text(&b); err != nil {
		return err
	}
	for text := range strings.Lines(b.String()) {
		fmt.Fprintln(a.stdout, report.Clean(strings.TrimSuffix(text, "\n")))
	}
	return nil
}

// ofCertificates is the failure to make or read a certificate.
func ofCertificates(path string, err error) error {
	refusal, refused := errors.AsType[*certify.Refusal](err)
	pathErr, isPath := errors.AsType[*os.PathError](err)
	switch {
	case refused:
		return usage(refusal.Error(), "", "")
	case errors.Is(err, certify.ErrRun):
		return &failure{status: statusUsage, found: err.Error(), expected: "a folder that conform run --out made", err: err}
	case isPath:
		return unreadable(pathErr.Path, "a file that can be used", err)
	}
	return err
}
