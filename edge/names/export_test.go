package names

import "context"

// AnswerQuery returns the answer to a datagram.
func AnswerQuery(s *Server, query []byte) []byte {
	return s.answerQuery(context.Background(), query, maxDatagram)
}
