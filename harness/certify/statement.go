package certify

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	testresult "github.com/in-toto/attestation/go/predicates/test_result/v0"
	intoto "github.com/in-toto/attestation/go/v1"
	"github.com/secure-systems-lab/go-securesystemslib/dsse"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/structpb"

	"conform/harness"
	"conform/spec"
	"conform/traces"
)

const (
	payloadType = "application/vnd.in-toto+json"
	// PredicateType is that of the statement with our own predicate, [Predicate].
	PredicateType = "urn:conform:certificate:v1"
	testType      = "https://in-toto.io/attestation/test-result/v0.1"
)

// The signed statements, by member.
const (
	conformanceMember = "statements/conformance.dsse.json"
	testResultMember  = "statements/test-result.dsse.json"
)

// Predicate is what the signers of a certificate state. All of it follows from the
// other members. Seeds and other large numbers are in those.
type Predicate struct {
	Tool          string       `json:"tool"`
	SpecDigest    string       `json:"spec_digest"`
	Profile       string       `json:"profile"`
	ProfileDigest string       `json:"profile_sha256"`
	Quarter       string       `json:"quarter"`
	QuarterValue  string       `json:"quarter_value"`
	Verdict       spec.Verdict `json:"verdict"`
	Attempts      int          `json:"attempts"`
	Required      int          `json:"required"` // of the attempts, those that the profile needs
	Issued        time.Time    `json:"issued"`   // when the last attempt ended
	Expires       time.Time    `json:"expires"`
	Rules         []RuleClaim  `json:"rules"`
}

// RuleClaim is a rule as the required attempts kept it.
type RuleClaim struct {
	ID     spec.RuleID `json:"id"`
	Level  spec.Level  `json:"level"`  // of the evidence that it was judged by
	Judged int         `json:"judged"` // to how much it was applied
}

// predicate is what the record lets its signers state.
func (r *record) predicate() Predicate {
	p := Predicate{
		Tool: "conform " + harness.Version, SpecDigest: traces.SpecDigest(), Profile: r.profile.Name, ProfileDigest: digestOf(r.profile.text),
		Quarter: r.quarter.Name, QuarterValue: r.quarter.Value, Verdict: spec.Pass, Attempts: len(r.journal), Required: len(r.required),
		Issued: r.issued, Expires: r.expires, Rules: []RuleClaim{},
	}
	for _, rule := range spec.Rules() {
		if n := r.judgedBy(rule.ID); n > 0 {
			p.Rules = append(p.Rules, RuleClaim{rule.ID, rule.Level, n})
		}
	}
	return p
}

// statements are the payloads of the envelopes, by member. They name the list of
// members, and by it the whole certificate.
func (r *record) statements(list []byte) (map[string][]byte, error) {
	subject := []*intoto.ResourceDescriptor{
		{Name: listMember, Digest: map[string]string{"sha256": digestOf(list)}},
		{Name: r.subject.Build.Engine, Digest: map[string]string{"sha256": r.subject.Build.digest()}},
	}
	p := r.predicate()
	own, err := plainStruct(p)
	if err != nil {
		return nil, err
	}
	result := &testresult.TestResult{Result: "PASSED", Configuration: []*intoto.ResourceDescriptor{
		{Name: profileMember, Digest: map[string]string{"sha256": p.ProfileDigest}},
	}}
	for _, i := range r.required {
		a := r.journal[i]
		result.PassedTests = append(result.PassedTests, fmt.Sprintf("%s.%s.%d", a.Scenario, a.Mode, a.Seed))
	}
	text, err := canonical(result)
	if err != nil {
		return nil, err
	}
	test := &structpb.Struct{}
	if err := protojson.Unmarshal(text, test); err != nil {
		return nil, fmt.Errorf("test result: %w", err)
	}
	out := map[string][]byte{}
	for name, s := range map[string]*intoto.Statement{
		conformanceMember: {Type: intoto.StatementTypeUri, Subject: subject, PredicateType: PredicateType, Predicate: own},
		testResultMember:  {Type: intoto.StatementTypeUri, Subject: subject, PredicateType: testType, Predicate: test},
	} {
		if err := s.Validate(); err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		if out[name], err = canonical(s); err != nil {
			return nil, err
		}
	}
	return out, nil
}

func plainStruct(v any) (*structpb.Struct, error) {
	s := &structpb.Struct{}
	if err := protojson.Unmarshal(line(v), s); err != nil {
		return nil, fmt.Errorf("statement: %w", err)
	}
	return s, nil
}

// canonical is a message as JSON in one form: protojson varies its spaces on purpose.
func canonical(m proto.Message) ([]byte, error) {
	text, err := protojson.Marshal(m)
	if err != nil {
		return nil, err
	}
	var b bytes.Buffer
	if err := json.Compact(&b, text); err != nil {
		return nil, err
	}
	return b.Bytes(), nil
}

// sign makes an envelope, with the signatures in the order of the keys' ids.
func sign(ctx context.Context, payload []byte, keys []ed25519.PrivateKey) ([]byte, error) {
	signers := make([]dsse.Signer, len(keys))
	for i, k := range keys {
		signers[i] = signer{k, k.Public().(ed25519.PublicKey)}
	}
	s, err := dsse.NewEnvelopeSigner(signers...)
	if err != nil {
		return nil, err
	}
	env, err := s.SignPayload(ctx, payloadType, payload)
	if err != nil {
		return nil, err
	}
	return line(env), nil
}

// envelope is a signed statement whose signatures all hold.
type envelope struct {
	payload []byte
	signers []string // ids of their keys, in order
}

// openEnvelope checks every signature of an envelope, each by its key. It accepts one
// form of an envelope, so that none of its bytes can be changed unseen.
func openEnvelope(ctx context.Context, name string, b []byte, keys map[string]ed25519.PublicKey) (*envelope, error) {
	var env dsse.Envelope
	d := json.NewDecoder(bytes.NewReader(b))
	d.DisallowUnknownFields()
	if err := d.Decode(&env); err != nil {
		return nil, refuse(CodeMalformed, name, "no envelope: %v", err)
	}
	if !bytes.Equal(line(env), b) {
		return nil, refuse(CodeMalformed, name, "an envelope is written in one form only, and this is another")
	}
	if env.PayloadType != payloadType || len(env.Signatures) == 0 || len(env.Signatures) > maxSigners {
		return nil, refuse(CodeMalformed, name, "payload type %q with %d signatures", env.PayloadType, len(env.Signatures))
	}
	e := &envelope{}
	var verifiers []dsse.Verifier
	for _, s := range env.Signatures {
		key, ok := keys[s.KeyID]
		if !ok {
			return nil, refuse(CodeSignature, name, "it has a signature of key %.12s, and the certificate does not hold that key", s.KeyID)
		}
		if raw, err := base64.StdEncoding.DecodeString(s.Sig); err != nil || base64.StdEncoding.EncodeToString(raw) != s.Sig {
			return nil, refuse(CodeSignature, name, "the signature of key %.12s is no base64", s.KeyID)
		}
		e.signers, verifiers = append(e.signers, s.KeyID), append(verifiers, signer{pub: key})
	}
	if !slices.IsSorted(e.signers) || len(slices.Compact(slices.Clone(e.signers))) != len(e.signers) {
		return nil, refuse(CodeMalformed, name, "its signatures are not in the order of their keys, each once")
	}
	v, err := dsse.NewMultiEnvelopeVerifier(len(verifiers), verifiers...)
	if err != nil {
		return nil, err
	}
	if _, e.payload, err = v.VerifyAndDecode(ctx, &env); err != nil {
		return nil, refuse(CodeSignature, name, "a signature does not fit what it signs: %v", err)
	}
	if base64.StdEncoding.EncodeToString(e.payload) != env.Payload {
		return nil, refuse(CodeMalformed, name, "its payload is written in another form than the usual one")
	}
	return e, nil
}

// signedList is the digest of the list of members that a statement signs.
func (e *envelope) signedList(name string) (string, error) {
	var s intoto.Statement
	if err := protojson.Unmarshal(e.payload, &s); err != nil {
		return "", refuse(CodeMalformed, name, "no statement: %v", err)
	}
	if err := s.Validate(); err != nil {
		return "", refuse(CodeMalformed, name, "no statement: %v", err)
	}
	for _, sub := range s.GetSubject() {
		if sub.GetName() == listMember {
			return sub.GetDigest()["sha256"], nil
		}
	}
	return "", refuse(CodeMalformed, name, "it does not speak of %s", listMember)
}
