/* SPDX-License-Identifier: Apache-2.0 */
/**
 * maru/error.h - results and messages
 *
 * Every function that can fail returns 0 or a count on success and a negative errno on failure.
 * The calling thread's message says what was wrong and what is allowed.
 *
 *   -EINVAL           bad argument; the message names it
 *   -ENOENT           no such thing: a miss, a released lease, an unknown operation
 *   -EEXIST           the object is already present in that placement domain (a success for caches)
 *   -EINPROGRESS      pending: accepted and not finished, or the commit's fate is not known yet
 *   -ENOSPC           pool, grant or host aggregate is full
 *   -ENOMEM           no memory stands behind it
 *   -EDQUOT           a limit of this uid or session
 *   -EAGAIN           a bounded table is full; try again after acknowledging or releasing
 *   -EBUSY            leases, views or another holder; the message names them
 *   -ENOTUNIQ         conflict: same operation with other content, or an overlapping range
 *   -ESTALE           a generation or an epoch that has passed
 *   -EMEDIUMTYPE      incompatible size or format: never a hit
 *   -EBADMSG          a checksum is wrong: these are not the bytes that were stored
 *   -EACCES           not yours
 *   -ENOTCONN         no connection to marud now; the client reconnects by itself
 *   -EKEYREVOKED      the session is fenced: another worker has its engine; open a new client
 *   -ETIMEDOUT        the deadline passed; it covered send and receive together
 *   -EPROTO           the other side broke the protocol
 *   -EPROTONOSUPPORT  versions do not fit; the message has both
 *   -EOPNOTSUPP       a capability that this marud, this build or this machine does not have
 *   -ENODEV           not available now: marud is draining; no such GPU
 *   -E2BIG            an option struct sets a field that this version does not know
 *   -EMSGSIZE         over a documented limit
 *   -EMFILE           a descriptor could not be received
 *   -EOWNERDEAD       called in a forked child: open a client of its own
 *   -EIO              marud met an I/O error, or a GPU failed; the message says which
 */
#ifndef MARU_ERROR_H
#define MARU_ERROR_H

#ifdef __cplusplus
extern "C" {
#endif

/**
 * maru_last_error() - the message of the calling thread's last failed call
 *
 * Return: text owned by the library, valid until this thread's next call into it; "" if none failed.
 * Thread safety: the message is thread-local.
 * Blocking:      never.
 * Since: 0.1
 */
const char *maru_last_error(void);

/**
 * maru_error_name() - the symbolic name of a result
 * @result: what a function returned, 0 or negative
 *
 * Return: "ENOENT", "OK", or "?" for a value that no function returns. Static text.
 * Thread safety: any thread. Blocking: never.
 * Since: 0.1
 */
const char *maru_error_name(int result);

/**
 * maru_version() - the version of the library, "MAJOR.MINOR.PATCH"
 *
 * Return: static text. Thread safety: any thread. Blocking: never.
 * Since: 0.1
 */
const char *maru_version(void);

#ifdef __cplusplus
}
#endif
#endif
