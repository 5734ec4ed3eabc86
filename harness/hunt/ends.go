package hunt

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"conform/harness"
)

// End is one way in which a lease can come to its end while an access to it is held,
// and how a plan brings it about.
type End struct {
	Name string
	Says string // in words, after "while it is held": its client asks to stop it
	// Whys are those of the frees that belong to it; empty: any.
	Whys []string

	// remote is set where it makes sense for accesses to another worker alone.
	remote bool
	// chunks is set where it takes a transfer of several chunks, which are those of kv.
	chunks bool
	rules  func(t target) []string
}

// target is what a plan is written for.
type target struct {
	class   Class
	through Class // the remote access that is held: class, or the other half of its transfer
	until   string
	load    harness.Load
	times   int // how often the rules act at most
}

// Ends lists the ways, those that need no clock first.
func Ends() []End {
	return []End{
		{
			Name: "abort", Says: "its client asks to stop the request", Whys: []string{"cancel", "timeout"},
			rules: func(t target) []string {
				return []string{t.hold(t.load.Limits.AbortTimeout * 3 / 4), t.act("abort", "")}
			},
		},
		{
			Name: "abort-overdue", Says: "its client asks to stop the request, and it outlasts the clock that waits for the end", Whys: []string{"timeout", "cancel"},
			rules: func(t target) []string { return []string{t.hold(5 * t.load.Limits.AbortTimeout), t.act("abort", "")} },
		},
		{
			Name: "unrenewed", Says: "what its accessor says comes late, and a clock ends the lease", Whys: []string{"timeout"}, remote: true,
			rules: func(t target) []string {
				return []string{t.hold(3 * t.load.Limits.Lease), t.lateWords(t.load.Limits.Lease * 3 / 2)}
			},
		},
		{
			Name: "overdue", Says: "it takes longer than every clock of the stack", Whys: []string{"timeout", "cancel", "peer_lost"},
			rules: func(t target) []string {
				return []string{t.hold(t.load.Limits.HandoffTimeout + 2*t.load.Limits.AbortTimeout + t.load.Limits.PeerTimeout)}
			},
		},
		{
			Name: "silence", Says: "its accessor's process stands still for longer than its peer waits", Whys: []string{"peer_lost", "timeout"}, remote: true,
			rules: func(t target) []string {
				pause := t.load.Limits.PeerTimeout * 3 / 2
				t.times = min(t.times, 3) // a thread of the accessor's is left for others
				return []string{t.hold(2*pause + time.Second), t.act("pause", fmt.Sprintf("    worker: %s\n    for: %s\n", t.through.By, ms(pause)))}
			},
		},
		{
			Name: "late-word", Says: "its client asks to stop it, and the accessor's word comes after the clock has decided", Whys: []string{"timeout", "cancel"}, remote: true,
			rules: func(t target) []string {
				return []string{t.hold(20 * time.Millisecond), t.act("abort", ""), t.lateWords(2 * max(t.load.Limits.AbortTimeout, t.load.Limits.Lease))}
			},
		},
		{
			Name: "late-end", Says: "the accessor's last word comes after the clock has decided", Whys: []string{"timeout", "done"}, remote: true,
			rules: func(t target) []string {
				return []string{t.hold(20 * time.Millisecond), t.lateWords(2 * max(t.load.Limits.AbortTimeout, t.load.Limits.Lease))}
			},
		},
		{
			Name: "sibling-fails", Says: "another chunk of its transfer fails", Whys: []string{"cancel", "timeout"}, chunks: true,
			rules: func(t target) []string {
				return []string{t.holdOf("n: 1, ", 400*time.Millisecond), t.rule("fail-the-next", t.accessWhen("n: 2, ", "after: {event: fault, same: handoff}"), "fail", "")}
			},
		},
		{
			Name: "repeated-word", Says: "its client asks to stop it, and words of earlier handoffs come again", Whys: []string{"cancel"}, remote: true,
			rules: func(t target) []string {
				many := t
				many.times *= 8
				return []string{
					many.hold(150 * time.Millisecond), many.act("abort", ""),
					t.rule("say-it-again", t.words(), "duplicate", "    jitter: 20ms..300ms\n"),
				}
			},
		},
		{
			Name: "leave", Says: "its client closes the connection", Whys: []string{"cancel", "timeout"},
			rules: func(t target) []string { return []string{t.hold(400 * time.Millisecond), t.act("leave", "")} },
		},
		{
			Name: "owner-restarts", Says: "the owner of the memory dies and comes back", remote: true,
			rules: func(t target) []string {
				once := t
				once.times = 1
				return []string{once.hold(2 * time.Second), once.act("kill", fmt.Sprintf("    worker: %s\n    restart_after: 60ms\n", t.through.Owner))}
			},
		},
		{
			Name: "late-grant", Says: "what lets it begin comes after a clock has ended the lease", Whys: []string{"timeout"}, remote: true,
			rules: func(t target) []string {
				late := max(2*t.load.Limits.Lease, t.load.Limits.HandoffTimeout+2*t.load.Limits.AbortTimeout)
				r := t.through
				return []string{
					t.rule("late-message", fmt.Sprintf("{signal: \"*\", from: %s, to: %s, nth: 7, every: 11, count: %d}", r.Owner, r.By, t.times), "delay", "    for: "+ms(late)+"\n"),
					t.rule("late-request", fmt.Sprintf("{http: POST /generate, to: %s, nth: 7, every: 11, count: %d}", r.By, t.times), "delay", "    for: "+ms(late)+"\n"),
				}
			},
		},
		{
			Name: "done", Says: "its request comes to its end", Whys: []string{"done"},
			rules: func(t target) []string { return []string{t.hold(300 * time.Millisecond)} },
		},
	}
}

func endNames() string {
	var names []string
	for _, e := range Ends() {
		names = append(names, e.Name)
	}
	return strings.Join(names, ", ")
}

func endByName(name string) End {
	all := Ends()
	return all[slices.IndexFunc(all, func(e End) bool { return e.Name == name })]
}

func (e End) applies(c Class) bool { return (!e.remote || !c.Own) && (!e.chunks || c.Pool == "kv") }

// seen joins what a class met by the reason of the free.
func (e End) seen(by map[string]*Seen) Seen {
	all := Seen{Ordered: map[string]int{}}
	for why, s := range by {
		if why == "" || !e.covers(why) {
			continue
		}
		all.Times, all.Unproven = all.Times+s.Times, all.Unproven+s.Unproven
		for what, n := range s.Ordered {
			all.Ordered[what] += n
		}
	}
	return all
}

// covers reports whether a free for this reason belongs to the end.
func (e End) covers(why string) bool { return len(e.Whys) == 0 || slices.Contains(e.Whys, why) }

// The conditions under which what is held goes on, the one that drives the harm
// furthest first: the next owner has its content in the block, or has the block.
const (
	untilContent = "content"
	untilAlloc   = "alloc"
	untilGrown   = "fourth block" // where a request takes one block at a time
)

// holdRule is the rule of each plan that holds accesses.
const holdRule = harness.HoldRule

func (t target) release() string {
	event, nth := "alloc", ""
	switch t.until {
	case untilContent:
		event = "digest"
	case untilGrown:
		nth = ", nth: 4"
	}
	if t.class.Own { // a plan knows the blocks at the far end alone: some later ones
		return fmt.Sprintf("{event: %s, from: %s, pool: %s, nth: 6}", event, t.class.Owner, t.class.Pool)
	}
	return fmt.Sprintf("{event: %s, from: %s, pool: %s, same: block%s}", event, t.class.Owner, t.class.Pool, nth)
}

func (t target) accessWhen(more, counts string) string {
	return fmt.Sprintf("{access: %s, pool: %s, from: %s, %s%s}", t.through.Mode, t.through.Pool, t.through.By, more, counts)
}

func (t target) counts() string {
	if t.load.Scripted {
		return "nth: 3, count: 1"
	}
	return fmt.Sprintf("nth: 5, every: 7, count: %d", t.times)
}

func (t target) hold(limit time.Duration) string { return t.holdOf("", limit) }

func (t target) holdOf(more string, limit time.Duration) string {
	until := "    until: " + t.release() + "\n    limit: " + ms(limit) + "\n"
	if t.load.Scripted { // the script lets go of what the stack keeps
		until = "    until: " + t.release() + "\n    limit: 100s\n"
	}
	return t.rule(holdRule, t.accessWhen(more, t.counts()), "hold", until)
}

// act does something else to the requests, or workers, of what is held.
func (t target) act(do, more string) string {
	counts := t.counts()
	if do == "pause" || do == "kill" { // when all are held
		counts = fmt.Sprintf("nth: %d, count: 1", 5+7*(t.times-1))
	}
	if do == "abort" && t.load.Scripted {
		more += "    worker: decode\n"
	}
	return t.rule(do+"-meanwhile", t.accessWhen("", counts), do, more)
}

// lateWords delays what the accessor says about handoffs that an earlier fault hit.
func (t target) lateWords(by time.Duration) string {
	return t.rule("late-words", t.words(), "delay", "    for: "+ms(by)+"\n")
}

// words are what the accessor says about handoffs that an earlier fault hit.
func (t target) words() string {
	return fmt.Sprintf("{signal: \"*\", from: %s, to: %s, after: {event: fault, same: handoff}}", t.through.By, t.through.Owner)
}

func (t target) rule(name, when, do, more string) string {
	return "  - name: " + name + "\n    when: " + when + "\n    do: " + do + "\n" + more
}

// longest bounds what a plan waits for: a clock that runs for longer is not outwaited.
const longest = 4 * time.Second

// ms writes a time as plans have it.
func ms(d time.Duration) string { return fmt.Sprintf("%dms", min(d, longest).Milliseconds()) }

// plan is the text of a fault plan, with a comment that says what it is for.
func (e End) plan(t target) string {
	head := fmt.Sprintf("# %s is held, and %s, until %s/%s has a new owner's %s in it.\n", t.class, e.Says, t.class.Owner, t.class.Pool, t.until)
	return head + "rules:\n" + strings.Join(e.rules(t), "")
}
