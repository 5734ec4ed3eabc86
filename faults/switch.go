package faults

import "fmt"

// Switch puts a rule of the plan on or off. While it is off it counts nothing,
// draws nothing and does nothing; what it holds stays held. Each rule is on at
// first. A name that no rule has is an error.
func (e *Engine) Switch(rule string, on bool) error {
	if err := e.known(rule); err != nil {
		return err
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.off[rule] = !on
	return nil
}

// Release ends what a rule holds at present, as if the event that it waits for
// had come, and says how many holds that were. A name that no rule has is an error.
func (e *Engine) Release(rule string) (int, error) {
	if err := e.known(rule); err != nil {
		return 0, err
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	n := 0
	for h := range e.holds {
		if h.rule == rule {
			delete(e.holds, h)
			close(h.over)
			n++
		}
	}
	return n, nil
}

func (e *Engine) known(rule string) error {
	for _, r := range e.rules {
		if r.Name == rule {
			return nil
		}
	}
	return fmt.Errorf("faults: the plan %s has no rule %q", e.plan.Name, rule)
}
