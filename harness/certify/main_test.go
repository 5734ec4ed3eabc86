package certify

import (
	"context"
	"crypto/ed25519"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"conform/adapters/reference"
	"conform/harness"
	"conform/traces"
)

// The workers of the stack are this test's program executed again.
func TestMain(m *testing.M) {
	if reference.Main() {
		os.Exit(0)
	}
	code := m.Run()
	if made.dir != "" {
		os.RemoveAll(made.dir)
	}
	os.Exit(code)
}

// smallProfile is one scenario, once, and one defect that must be found.
const smallProfile = `name: small
adapter: reference
seeds: 1
valid_days: 30
retries: 1
scenarios:
  - {id: cancel-during-transfer, modes: [push]}
rules: [BLK-2, SIG-1, SIG-2]
planted:
  - {defect: free-at-cancel, scenario: cancel-during-transfer, mode: push, rule: BLK-2}
`

// made is what the tests share: two runs of the reference stack, recorded once.
var made struct {
	sync.Once
	dir       string
	good, bad string // run folders
	seed      uint64
	err       error
}

// fixture is an input that makes a certificate. Its folders are for reading only; see
// copied.
func fixture(tb testing.TB) Input {
	tb.Helper()
	p := profile(tb, smallProfile)
	made.Do(func() { made.err = record2(tb.Context(), p) })
	require.NoError(tb, made.err)
	return Input{Runs: []string{made.good, made.bad}, Profile: p, Quarters: testQuarters(), Keys: []ed25519.PrivateKey{key(1)}}
}

// recordedEnv names the folder of the recorded runs to the processes of a fuzzer, which
// must all speak of the same ones.
const recordedEnv = "CERTIFY_TEST_RUNS"

func record2(ctx context.Context, p Profile) (err error) {
	dir := os.Getenv(recordedEnv)
	if dir == "" {
		if made.dir, err = os.MkdirTemp("", "certify-test-*"); err != nil {
			return err
		}
		dir = made.dir
	}
	// The seeds depend on the build alone, which any manifest tells.
	cfg := harness.Config{Scenarios: []string{"cancel-during-transfer"}, Modes: []string{"push"}}
	build := subjectOf(traces.Manifest{Adapter: traces.ManifestAdapter{Name: "reference", Engine: "reference " + harness.Version}}).Build
	build.Args, build.Env = []string{}, []string{}
	made.seed = Seeds(testValue, build.digest(), p.Seeds)[0]
	cfg.Seeds = []uint64{made.seed}
	made.good, made.bad = filepath.Join(dir, "good"), filepath.Join(dir, "bad")
	if made.dir == "" {
		return nil
	}
	cfg.OutDir = made.good
	if _, err := harness.Run(ctx, cfg); err != nil {
		return err
	}
	cfg.OutDir, cfg.Defect = made.bad, "free-at-cancel"
	if _, err = harness.Run(ctx, cfg); err != nil {
		return err
	}
	return os.Setenv(recordedEnv, dir)
}

// testValue is the value of every quarter that a test may run in.
const testValue = "00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff"

func testQuarters() Quarters {
	q := Quarters{}
	for d := -100; d <= 100; d += 20 {
		q[QuarterOf(time.Now().AddDate(0, 0, d))] = testValue
	}
	return q
}

func profile(tb testing.TB, text string) Profile {
	tb.Helper()
	p, err := ParseProfile([]byte(text))
	require.NoError(tb, err)
	return p
}

// key is a private key of its own for each number.
func key(n byte) ed25519.PrivateKey {
	return ed25519.NewKeyFromSeed(slices.Repeat([]byte{n}, ed25519.SeedSize))
}

func public(k ed25519.PrivateKey) ed25519.PublicKey { return k.Public().(ed25519.PublicKey) }

// check is what accepts the fixture's certificate.
func (in Input) check(keys ...ed25519.PrivateKey) Check {
	c := Check{Trust: Trust{Threshold: 1}, Quarters: in.Quarters, Profile: &in.Profile}
	if len(keys) == 0 {
		keys = in.Keys
	}
	for _, k := range keys {
		c.Trust.Keys = append(c.Trust.Keys, TrustedKey{Name: "vendor", Key: public(k)})
	}
	return c
}

// certificate makes the input's certificate in a folder of the test.
func certificate(tb testing.TB, in Input) string {
	tb.Helper()
	path := filepath.Join(tb.TempDir(), "c.cert")
	_, err := Certify(tb.Context(), in, path)
	require.NoError(tb, err)
	return path
}

// copied is the input with run folders that the test may change.
func (in Input) copied(tb testing.TB) Input {
	tb.Helper()
	dir := tb.TempDir()
	for i, run := range in.Runs {
		to := filepath.Join(dir, filepath.Base(run))
		require.NoError(tb, os.CopyFS(to, os.DirFS(run)))
		if i == 0 {
			in.Runs = slices.Clone(in.Runs)
		}
		in.Runs[i] = to
	}
	return in
}
