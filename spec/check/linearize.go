package check

import (
	"context"
	"fmt"
	"sync/atomic"

	"github.com/anishathalye/porcupine"
)

// limits bound one search of Porcupine.
const (
	// stateBytes is about what one remembered state takes besides the set of
	// operations that led to it.
	stateBytes = 256
	// maxOperations bounds the operations of one search.
	maxOperations = 1 << 16
)

// transition is a model's step, for Porcupine. It must not panic; if it does, the
// search ends and says so.
type transition func(state, input any) (bool, any)

// linearize has Porcupine search for an order of the operations that the steps
// allow. Unknown is a search that took more than the options' time or memory: the
// memory is reckoned by what Porcupine remembers, the set of operations done at
// each step that succeeded. The second result says that the model panicked.
func (c *court) linearize(ops []porcupine.Operation, init any, step transition, equal func(a, b any) bool) (porcupine.CheckResult, string) {
	if len(ops) > maxOperations {
		return porcupine.Unknown, ""
	}
	var panicked atomic.Value
	var spent atomic.Int64
	each := int64(len(ops)/8 + stateBytes)
	var stop atomic.Bool
	model := c.modelOf(init, step, equal)
	inner := model.StepContext
	model.StepContext = func(ctx context.Context, state, input, output any) (ok bool, next any) {
		defer func() {
			if r := recover(); r != nil {
				panicked.Store(fmt.Sprint(r))
				ok, next = false, state
			}
		}()
		if stop.Load() || c.ctx.Err() != nil {
			return false, state
		}
		ok, next = inner(ctx, state, input, output)
		if ok && spent.Add(each) > c.opt.BlockMemory {
			stop.Store(true)
		}
		return ok, next
	}
	res := porcupine.CheckOperationsTimeout(model, ops, c.opt.BlockTimeout)
	if (stop.Load() || c.ctx.Err() != nil) && res == porcupine.Illegal {
		res = porcupine.Unknown
	}
	text, _ := panicked.Load().(string)
	return res, text
}

func (c *court) modelOf(init any, step transition, equal func(a, b any) bool) porcupine.Model {
	return porcupine.Model{
		Init: func() any { return init },
		StepContext: func(_ context.Context, state, input, _ any) (bool, any) {
			return step(state, input)
		},
		Equal: equal,
	}
}
