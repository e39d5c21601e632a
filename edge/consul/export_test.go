package consul

// DecodeSelf is decodeSelf.
var DecodeSelf = decodeSelf

// QueryName is queryName.
var QueryName = queryName
