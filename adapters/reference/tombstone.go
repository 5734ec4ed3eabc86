package reference

// tombstones remembers handoffs that have ended here, so that a message which
// was overtaken by the end of its handoff begins nothing. It keeps the latest
// ones, up to a bound: keys carry a generation, so an older one can't come back.
type tombstones struct {
	limit int
	order []string
	said  map[string]string
	kept  map[string]*prefillReq // only the defect double-release keeps any
}

func newTombstones(limit int) *tombstones {
	return &tombstones{limit: limit, said: map[string]string{}, kept: map[string]*prefillReq{}}
}

// add remembers that a handoff has ended, and with which signal a late grant is
// to be answered. The first word stands.
func (t *tombstones) add(handoff, signal string) {
	if t.has(handoff) {
		return
	}
	t.said[handoff] = signal
	t.order = append(t.order, handoff)
	if len(t.order) > t.limit {
		delete(t.said, t.order[0])
		t.order = t.order[1:]
	}
}

func (t *tombstones) has(handoff string) bool { return t.said[handoff] != "" }

func (t *tombstones) get(handoff string) string { return t.said[handoff] }

func (t *tombstones) keep(r *prefillReq) { t.kept[r.leg.Handoff] = r }

// request takes out what keep has put in.
func (t *tombstones) request(handoff string) *prefillReq {
	r := t.kept[handoff]
	delete(t.kept, handoff)
	return r
}
