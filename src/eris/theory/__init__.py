"""What the papers prove, as numbers: leakage, convergence and the time of one round.

Every module is pure functions on floats, each citing the equation it evaluates, so that a
measured run can be printed beside what the theory allows.
"""
