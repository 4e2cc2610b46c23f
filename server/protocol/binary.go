package protocol

// BinaryRequest is the first byte of a binary request.
const BinaryRequest = 0x80
