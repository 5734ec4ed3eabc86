package vllm

import (
	"embed"

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
var probe = fleet.Probe{core.Core(), fleet.Below(files, "probe")}
