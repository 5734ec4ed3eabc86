// Package check judges saved traces. (The chapter is written below, file by file.)
package check
