"""What a federation is to agree on, given its links, its data and what it must withstand.

A :class:`~eris.planning.question.Question` goes in, a :class:`~eris.planning.plan.FederationPlan`
comes out; nothing here computes what :mod:`eris.theory` does not.
"""
