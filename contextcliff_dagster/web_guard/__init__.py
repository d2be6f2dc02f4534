"""What every HTTP server of ours checks before it answers: Host, Origin, content type, token.

Browsers let any page send requests to servers on this machine. Does not belong here: what a server
answers (`inference.server`, `cli.webserver`).
"""
