package allocs

// DecodeLaunch is decodeLaunch.
var DecodeLaunch = decodeLaunch
