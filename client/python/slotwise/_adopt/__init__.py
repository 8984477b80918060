"""`slotwise.torch.adopt`: an existing torch model's embeddings as tables of a server.

find         which weights a model's embeddings have, and what cannot be adopted
optimizers   which torch optimizers a table's optimizer equals, and their state
weight       the parameter of an adopted weight: a read gives the rows, a write is refused
gradient     the gradient of an adopted weight
table        one adopted weight: its rows go to the server and come back
modules      what nn.Embedding and nn.EmbeddingBag are while they are adopted
steps        an optimizer's step(), state_dict() and load_state_dict() meanwhile
trainers     what several trainers do together
adopt        the two calls that users make
"""
