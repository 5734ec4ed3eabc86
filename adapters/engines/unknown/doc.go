// Package unknown keeps book of what passed an adapter's proxies without being
// understood. It passed as it was: nothing of ours may stand in for a message that an
// engine's own parsers may know better. But a run that has some was not seen whole, so
// each kind is told once, with how often it came.
//
// Kinds are told apart by where they passed, how they begin, their number of frames and
// why they were not understood. A peer may send what it likes, so their number is
// bounded.
package unknown
