package check

func (c *court) askPorcupine() {}
