package probe

import (
	"embed"
	"io/fs"
)

//go:embed conform_probe/*.py
var files embed.FS

// Core is the shared Python, below the folder conform_probe.
func Core() fs.FS { return files }
