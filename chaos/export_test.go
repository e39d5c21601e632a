package chaos

// ParseRefusal is for the fuzz test of what is read of logs.
var ParseRefusal = parseRefusal
