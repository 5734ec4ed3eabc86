// Package faults puts faults in the way of a running stack.
package faults
