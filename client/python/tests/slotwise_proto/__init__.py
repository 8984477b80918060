"""What protoc 3.21 made of proto/slotwise/v1; written by client/python/generate.sh, never by hand."""
