"""EncCluster's cryptography: sums of encrypted centroids that one key opens, for one set, once.

Decentralised multi-client functional encryption on secp256k1 with scalars that are new for every
label. Pure functions and state machines; secrets come in as arguments, drawn by whoever runs a
member. It needs the extra ``crypto``; to import it does not.

It does not hide a client's model from who opens: mappings and differences of centroids are known
there, and with the sums they give each client's clustered weights. Secure sums
(:mod:`eris.protocol.secure`) do.
"""
