// Package zmtp is a small codec of ZeroMQ's wire protocol.
package zmtp
