"""`python3 -m slotwise.synthetic` is `slotwise-synth`."""

from slotwise.synthetic.command import main

main()
