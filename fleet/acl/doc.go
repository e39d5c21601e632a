// Package acl says what a request may do: it compiles policies, which package aclpolicy reads, into an ACL, and answers
// whether the ACL allows a Requirement.
//
// The rules of precedence are Nomad's. A rule without "*" in its name comes before every glob. Of several globs the one
// with the most characters besides "*" decides alone; of two with as many, the later one in the order of the alphabet.
// Rules of the same name in several policies are united, and a deny among them takes away all of them.
//
// It is pure: package hub/access keeps the ACL of each token, package hub/api asks for each request.
package acl
