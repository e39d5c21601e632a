// Package planted shows that the checkers of package chaos/check find what they are
// there for: each bug of package skerry/planted, in a scenario of its own, within a
// minute and by the name of the invariant that it breaks; and that they find nothing
// in the same scenario without the bug. It has tests alone, and they need the build
// tag "planted".
//
// A scenario says what has to come together for its bug to do harm. BUG.txt is the
// one of the bug of that name.
package planted
