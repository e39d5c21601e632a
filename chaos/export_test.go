package chaos

// ParseRefusal is for the fuzz test of what is read of logs.
var ParseRefusal = parseRefusal

// Shorter is for the test of what a storm makes of drawn faults.
var Shorter = shorter
