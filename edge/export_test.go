package edge

import "skerry/edge/local"

// Agent is the edge as the local API shows it, without a socket.
func (e *Edge) Agent() local.Agent { return agent{e} }
