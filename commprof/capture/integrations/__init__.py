"""The hook inside training frameworks; each module needs its framework, and nothing else imports it.

- ``transformers``: ``Trainer(..., callbacks=[CaptureCallback("runs/x")])``
- ``lightning``: ``Trainer(..., callbacks=[CaptureCallback("runs/x")])``
- ``accelerate``: ``with capture(accelerator, optimizer, "runs/x"):`` around the loop
- ``deepspeed``: ``with capture(engine, "runs/x"):`` around the loop

A plain loop needs ``commprof.Capture`` alone. A step is an optimizer step everywhere: micro-batches that
only accumulate gradients belong to the step that they lead to.
"""
