package fleet

import (
	"errors"
	"fmt"
	"slices"
	"sync"

	"conform/adapters"
	"conform/spec"
)

// Of are the members of a role. A stack's own members embed a [Member].
func Of[M interface{ Is(role spec.Role) bool }](members []M, role spec.Role) []M {
	return slices.DeleteFunc(slices.Clone(members), func(m M) bool { return !m.Is(role) })
}

// Is reports whether the worker has a role.
func (m *Member) Is(role spec.Role) bool { return m.Role == role }

// Find resolves a role or a worker's id to a member; of several of a role, the first.
func Find[M interface{ Called(name string) bool }](members []M, name string) (m M, err error) {
	i := slices.IndexFunc(members, func(m M) bool { return m.Called(name) })
	if i < 0 {
		return m, fmt.Errorf("no worker %q: expected a role or an id such as prefill-0", name)
	}
	return members[i], nil
}

// Pair are the workers that serve a request.
func Pair[M interface{ Is(role spec.Role) bool }](members []M, r adapters.Request) (prefill, decode M, err error) {
	prefills, decodes := Of(members, spec.RolePrefill), Of(members, spec.RoleDecode)
	if r.Prefill < 0 || r.Prefill >= len(prefills) || r.Decode < 0 || r.Decode >= len(decodes) {
		return prefill, decode, fmt.Errorf("request %s is for prefill %d and decode %d of %d and %d: %w",
			r.ID, r.Prefill, r.Decode, len(prefills), len(decodes), adapters.ErrUnsupported)
	}
	return prefills[r.Prefill], decodes[r.Decode], nil
}

// StartAll starts all members at once, each by start.
func StartAll[M any](members []M, start func(M) error) error {
	errs := make([]error, len(members))
	var wg sync.WaitGroup
	for i, m := range members {
		wg.Go(func() { errs[i] = start(m) })
	}
	wg.Wait()
	return errors.Join(errs...)
}

// Fill has one worker serve a request by itself: send gets the request's number, from 1
// on, and its prompt, another for each number.
func (f *Fleet) Fill(worker string, tokens, output int, send func(n int, prompt []int32) (adapters.Answer, error)) error {
	if tokens < 1 || output < 1 {
		return fmt.Errorf("fill %s with %d and %d tokens: %w", worker, tokens, output, adapters.ErrUnsupported)
	}
	n := int(f.fills.Add(1))
	prompt := make([]int32, tokens)
	for i := range prompt {
		prompt[i] = 3 + int32((i*31+n*17)%1000)
	}
	answer, err := send(n, prompt)
	if err == nil && answer.Status >= 300 {
		err = fmt.Errorf("fill %s with %d tokens: status %d", worker, tokens, answer.Status)
	}
	return err
}
