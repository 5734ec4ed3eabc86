// Package engines keeps isolated environments of published engine versions, so
// that an adapter drives a real engine on any machine, and the same one each time.
//
// # What an environment is
//
// A lock file (folder locks, embedded in the program) names every package of an
// environment by version and hash, and says in its header what else the
// environment takes. There are two kinds. A base holds what the versions of an
// engine share: a Python virtual environment with torch, the transfer engines and
// a hundred more. An engine lock adds one version's own wheels, in a folder that
// goes in front of PYTHONPATH. So a second version costs seconds, and adding one is
// adding a file. [Builtin] reads the embedded locks; [Catalog.Add] reads more of them.
//
// # Without a GPU
//
// The wheels of torch are built for CUDA and do not load without its libraries,
// 3 GB that a machine without a GPU has no use for. A base of device cpu gets
// stand-ins instead: shared libraries compiled here that have the symbols that
// torch asks for, under their versions, and whose every function answers "no
// device". Torch then finds no GPU, and runs on the CPU. See [CUDAStubs].
//
// # Installing
//
// [Store.Install] works in a staging folder and renames it when all is done, so an
// environment is there whole or not at all. A journal in the staging folder lists
// the steps that are finished; after a kill at any moment the next call goes on
// behind the last of them. One flock on the store keeps writers apart. Every child
// runs in a process group of its own, which ends with the context.
//
// # Using
//
// [Find] gives an adapter the [Environment] of an engine: the interpreter, the
// paths, the variables, and the digest of the locks, for manifests. Where it is not
// installed the error is a [NotInstalledError] that names the command.
package engines
