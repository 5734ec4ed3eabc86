package external

import (
	"embed"
	"io/fs"
)

//go:embed writers/conform_trace.h writers/conform_trace.py
var files embed.FS

// Writers are conform_trace.h and conform_trace.py.
func Writers() fs.FS {
	sub, err := fs.Sub(files, "writers")
	if err != nil {
		panic(err) // the folder is embedded above
	}
	return sub
}
