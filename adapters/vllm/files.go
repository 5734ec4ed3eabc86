package vllm

import _ "embed"

// script is what the fork server runs in each worker.
//
//go:embed serve/serve.py
var script string
