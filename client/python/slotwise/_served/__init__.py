"""`slotwise.torch.export_module`: a plain torch copy of a model whose rows are on a server.

modules   the torch modules that stand in the copy for those of `slotwise.torch`
bags      the copy's module for several features
pooling   sums and divisors of bags, in operations that torch scripts, traces and exports to ONNX
export    the call that users make
"""
