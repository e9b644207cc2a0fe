"""The fast path: the few calls of an on-sale, answered on an event loop by small handlers, without the framework.

An app contributes `dispatcher.Route`s whose handlers take a `request.Request` and return a `response.Reply` or raise a
`problems.Problem`. A handler never waits in its thread: what asks PostgreSQL or Redis goes to
`thread_pool.run_in_thread`, or, where many ask the same at once, through a `batch_loader.BatchLoader`; what commits
goes through group commit. An unusual request (another method, a log-in session, an odd header) is forwarded to the
site, which answers each of these calls too, by the same services: the handler raises `ForwardToSite` before the body is
read.
"""
