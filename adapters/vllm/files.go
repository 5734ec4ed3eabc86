package vllm

import (
	"embed"
	"io/fs"

	"conform/adapters/engines/fleet"
	core "conform/adapters/engines/probe"
)

//go:embed probe/conform_vllm_probe/*.py probe/conform_vllm_probe-1.dist-info/*
var files embed.FS

// script is what the fork server runs in each worker.
//
//go:embed serve/serve.py
var script string

// probe is the Python of the probe, with what the probes of all engines share.
var probe = fleet.Probe{core.Core(), below("probe")}

// below is a folder of the embedded files.
func below(folder string) fs.FS {
	tree, err := fs.Sub(files, folder)
	if err != nil {
		panic(err) // the name is a constant
	}
	return tree
}
