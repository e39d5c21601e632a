package consul

// DecodeSelf is decodeSelf.
var DecodeSelf = decodeSelf
