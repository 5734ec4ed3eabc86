// Package tinymodel writes a language model that is small enough to make, and that
// cannot hide a mistake in its KV cache.
//
// A conformance test compares answers: were the KV pages that a decode worker read
// those that were written for this prompt? A real model answers that badly. It
// takes gigabytes, and its greedy output is often the same although a page in
// the middle of a long prompt holds another tenant's content. The model written here
// is a Llama of two layers with seeded random weights, 0.8 MB, that every engine
// loads from a folder. The scales of its weights were chosen so that attention is
// sharp enough for each token to look at some pages more than at others, and strong
// enough to decide the output: for prompts of up to 800 tokens each page of 16 tokens,
// exchanged for that of another prompt, changes the next 16 greedy tokens. With
// longer prompts compare more tokens. The test beside this package shows it, where an
// engine is installed.
//
// The same seed gives the same bytes on every machine: the weights are drawn with
// integers alone, and rounded once.
package tinymodel
