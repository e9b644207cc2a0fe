"""The fast path: the few calls of an on-sale, answered on an event loop by small handlers, without the framework.

An app contributes `dispatcher.Route`s whose handlers take a `request.Request` and return a `response.Reply` or raise a
`problems.Problem`. A handler never blocks the loop: it calls PostgreSQL or Redis by `thread_pool.run_in_thread`, or,
where many requests read alike, through a `batch_loader.BatchLoader`; writes go through group commit. An unusual request
(another method, an ended session, an odd header) is forwarded to the site, which answers each of these calls too, by
the same services: the handler raises `ForwardToSite` before it reads the body.
"""
