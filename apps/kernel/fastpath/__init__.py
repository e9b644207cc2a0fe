"""The lane: how the crowd's few calls are answered without the framework, by small handlers on an event loop.

An app contributes `dispatcher.Route`s whose handlers take a `request.Request` and return a `response.Reply` or raise a
`problems.Problem`. A handler never waits in its thread: what asks PostgreSQL or Redis goes to
`thread_pool.run_in_thread`, or, where many ask the same at once, through a `batch_loader.BatchLoader`; what commits
goes through group commit. What is not plainly the lane's (another method, a log-in session, an odd header) it forwards
to the site, which answers every one of these calls as well, by the same services: `raise ForwardToSite` before the body
is read.
"""
