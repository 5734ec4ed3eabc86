// Package launch starts the Python worker processes of an engine, watches them and
// ends them, whatever happens to whom.
//
// # One worker, many processes
//
// A worker of an engine is a tree of processes: a server, a scheduler per rank, and
// whatever those start, some of it in sessions of its own. A harness that crashes,
// pauses and restarts workers has to reach all of them, and to leave none behind.
// So each worker has a guard: a small process between this program and the worker
// that is the "child subreaper" of the worker's tree. On Linux a process below it
// that loses its parent becomes the guard's child, so nothing leaves the tree. When
// the worker's main process ends, the guard ends the rest. When the program that
// started it ends, even by SIGKILL, the guard sees a pipe close and ends everything.
//
// # Two ways to start
//
// [Plain] executes the interpreter for each worker, as a person would. A
// [ForkServer] imports the engine once, which takes most of a start, and forks each
// worker from that. Both are a [Launcher], and run the same embedded script,
// forkserver.py, whose head tells the lines that it exchanges with this package.
//
// # Starting
//
// [Launcher.Start] returns when the worker serves: when its log holds the text of
// [Spec.Ready]. If its main process ends first, or the log holds one of
// [Spec.Failed], or the context ends, the error is a [*StartError] with the end of
// the log, and nothing of the worker is left.
//
// # Watching
//
// A worker's end is told once, through [Spec.OnExit], with the last lines of its log.
// The processes that were there when it became ready are its parts. When one of them
// ends and the main process does not follow within two seconds, the worker is of no
// more use: it is ended, and [Exit.Part] names the process that went first.
//
// # Ending
//
// [Process.Kill] ends one worker, [Launcher.Close] all of a launcher. Every process
// is known by its id and its start time, so that an id which the kernel gave away
// again is never signalled.
//
// # Temporary files
//
// A [Scratch] is a run's folder of temporary files, which goes with the run. A killed
// program's stays behind, with the file that it had locked: by that the next run knows
// that nobody needs it, and removes it.
//
// On systems other than Linux there are no subreapers and no /proc: there a worker is
// its process group.
package launch
