package harness

import "conform/spec"

// The rules of the plans below that clients react to.
const ruleHold = "hold-the-transfer"

// holdTransfer holds some transfers that the fabric has taken and not yet carried
// out: until their block has a new owner, which must not happen, or for a time.
func holdTransfer(access, from, limit string) string {
	return `
  - name: ` + ruleHold + `
    when: {access: ` + access + `, pool: kv, from: ` + from + `, nth: 3, every: 12}
    do: hold
    until: {event: alloc, pool: kv, same: block}
    limit: ` + limit + "\n"
}

func cancelDuringTransfer() Scenario {
	w := plainWorkload()
	w.onFault = map[string]giveUp{ruleHold: abort}
	return Scenario{
		ID: "cancel-during-transfer", Title: "A request is cancelled while its transfer runs",
		Why:      "A block has two owners at once, the request and the remote accessor. Ending the first must not hand it to a third.",
		Branches: []string{"a transfer was open when its request was cancelled", "a cancelled request gave its blocks back"},
		shapes: map[string]shape{onReference: {
			modal: map[string][]string{"push": {"an abort was acknowledged"}, "pull": {"a reader said that it had stopped"}},
			plans: map[string]string{
				"push": "rules:" + holdTransfer("w", "prefill", "120ms"),
				"pull": "rules:" + holdTransfer("r", "decode", "120ms"),
			},
			workload: w,
		}},
		reach: map[string]func(*recorded) bool{
			"a transfer was open when its request was cancelled": openAt(isKind(spec.KindCancel)),
			"a cancelled request gave its blocks back":           freedFor("cancel"),
			"an abort was acknowledged":                          observed(spec.RoleDecode, "ABORT_ACK"),
			"a reader said that it had stopped":                  observed(spec.RolePrefill, "READ_ABORT"),
		},
	}
}

func isKind(k spec.Kind) func(*spec.Event) bool {
	return func(e *spec.Event) bool { return e.K == k }
}

func freedFor(why string) func(*recorded) bool {
	return func(r *recorded) bool {
		return r.any(func(e *spec.Event) bool { return e.K == spec.KindFree && e.Why == why })
	}
}
