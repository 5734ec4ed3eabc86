// Package certify makes certificates from saved runs, and checks them offline.
//
// A certificate is one file that a vendor hands to a stranger. It holds the traces
// themselves, so that the stranger need not believe what it says: [Verify] judges
// every trace again, derives everything else from them anew, and compares. What is
// left to trust is that the traces were recorded on the stack that they name; that
// is what the signatures are for.
//
// # The file
//
// A plain tar, uncompressed (traces are compressed in themselves), of which every
// byte is determined by its content: fixed order, times, modes and owners. In it:
//
//	certificate.json       name, size and SHA-256 of each member below the line
//	keys/ID.pub            the public key of each signer; ID is its digest
//	statements/*.dsse.json the signed statements
//	---
//	journal.jsonl          all attempts in their order, aborted ones too, hash-chained
//	profile.yaml           what was asked for
//	quarter.json           the published value that the seeds derive from
//	results.json           what each attempt was judged to be
//	runs/NN/...            the run directories, without logs
//	subject.json           what was tested
//
// # Two directions, one computation
//
// From the run directories, a profile and a quarter, assess computes all other
// members, and the statements' text. [Certify] writes what it computed; [Verify]
// unpacks the run directories into a temporary folder, computes the same, and
// compares bytes. A certificate whose parts contradict each other can hence not
// hold, whoever signed it.
//
// # What is checked before what
//
// A certificate is untrusted input. Verify reads the first part of the file, which
// is small, and checks the signatures on it before it looks at anything that is
// large. Each further member is compared with its signed size and digest while it
// is unpacked; what the tar's own headers and padding say is compared byte by byte
// with what they must be. Only then are traces parsed. All sizes and counts are
// bounded by [Limits]. Nothing of a certificate is ever run.
//
// What makes a certificate fall is a [*Refusal], with a code for programs and words
// for people.
package certify
