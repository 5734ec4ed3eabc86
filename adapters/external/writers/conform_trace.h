/* conform_trace.h: write traces that Conform judges, from C or C++.
 *
 * One header, C99 and POSIX threads. One process is one source, one file:
 *
 *     conform_source *s = conform_open("run/events", "decode-0");
 *     conform_event e = conform_new("source");
 *     conform_text(&e, "worker", "decode-0");
 *     conform_text(&e, "role", "decode");
 *     conform_text(&e, "host", "h");
 *     conform_text(&e, "clock", "h/boot");
 *     conform_record(s, &e);
 *     ...
 *     conform_seal(s);
 *
 * Events may be recorded by many threads; each says once what it is called
 * (conform_thread), and the order of its records is program order. An event is one
 * write: what was recorded outlives a kill of the process. Nothing here fails into its
 * caller: what can't be written is counted, and said in a "lost" event once it can be;
 * until then the file ends in a torn line, so that the loss is seen in any case.
 * docs/writing-traces.md tells which event belongs where.
 */
#ifndef CONFORM_TRACE_H
#define CONFORM_TRACE_H

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>
#include <time.h>
#include <unistd.h>

#ifdef __cplusplus
extern "C" {
#endif

/* SHA-256 (FIPS 180-4), for the seal. */
typedef struct {
    uint32_t state[8];
    uint64_t bytes;
    unsigned char block[64];
} conform_sha256;

static inline uint32_t conform_rotate(uint32_t x, int n) { return x >> n | x << (32 - n); }

static inline void conform_sha256_block(conform_sha256 *h) {
    static const uint32_t k[64] = {
        0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5, 0xd807aa98, 0x12835b01, 0x243185be,
        0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174, 0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa,
        0x5cb0a9dc, 0x76f988da, 0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967, 0x27b70a85,
        0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85, 0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3,
        0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070, 0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f,
        0x682e6ff3, 0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2};
    uint32_t w[64], v[8];
    for (int i = 0; i < 16; i++)
        w[i] = (uint32_t)h->block[4 * i] << 24 | (uint32_t)h->block[4 * i + 1] << 16 | (uint32_t)h->block[4 * i + 2] << 8 | h->block[4 * i + 3];
    for (int i = 16; i < 64; i++) {
        uint32_t a = conform_rotate(w[i - 15], 7) ^ conform_rotate(w[i - 15], 18) ^ w[i - 15] >> 3;
        uint32_t b = conform_rotate(w[i - 2], 17) ^ conform_rotate(w[i - 2], 19) ^ w[i - 2] >> 10;
        w[i] = w[i - 16] + a + w[i - 7] + b;
    }
    memcpy(v, h->state, sizeof v);
    for (int i = 0; i < 64; i++) {
        uint32_t s1 = conform_rotate(v[4], 6) ^ conform_rotate(v[4], 11) ^ conform_rotate(v[4], 25);
        uint32_t t1 = v[7] + s1 + ((v[4] & v[5]) ^ (~v[4] & v[6])) + k[i] + w[i];
        uint32_t s0 = conform_rotate(v[0], 2) ^ conform_rotate(v[0], 13) ^ conform_rotate(v[0], 22);
        uint32_t t2 = s0 + ((v[0] & v[1]) ^ (v[0] & v[2]) ^ (v[1] & v[2]));
        memmove(v + 1, v, 7 * sizeof v[0]);
        v[4] += t1;
        v[0] = t1 + t2;
    }
    for (int i = 0; i < 8; i++) h->state[i] += v[i];
}

static inline void conform_sha256_start(conform_sha256 *h) {
    static const uint32_t start[8] = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a, 0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
    memcpy(h->state, start, sizeof start);
    h->bytes = 0;
}

static inline void conform_sha256_add(conform_sha256 *h, const char *data, size_t n) {
    for (size_t i = 0; i < n; i++) {
        h->block[h->bytes++ % 64] = (unsigned char)data[i];
        if (h->bytes % 64 == 0) conform_sha256_block(h);
    }
}

/* hex has room for 65 bytes. */
static inline void conform_sha256_end(conform_sha256 h, char *hex) {
    uint64_t bits = h.bytes * 8;
    conform_sha256_add(&h, "\x80", 1);
    while (h.bytes % 64 != 56) conform_sha256_add(&h, "", 1);
    for (int i = 7; i >= 0; i--) {
        char c = (char)(bits >> 8 * i);
        conform_sha256_add(&h, &c, 1);
    }
    for (int i = 0; i < 8; i++) sprintf(hex + 8 * i, "%08" PRIx32, h.state[i]);
}

/* An event under construction. conform_record releases it. */
typedef struct {
    char *text;
    size_t length, room;
    int failed; /* there was no memory for a part of it: it counts as lost */
} conform_event;

typedef struct {
    int fd;
    char *head; /* how each line begins */
    pthread_mutex_t lock;
    uint64_t seq, lost;
    off_t size; /* of whole lines */
    int torn, dirty, sealed;
    conform_sha256 sum;
} conform_source;

static inline void conform_put(conform_event *e, const char *s, size_t n) {
    if (e->failed) return;
    if (e->length + n + 1 > e->room) {
        size_t room = 2 * (e->length + n) + 128;
        char *text = (char *)realloc(e->text, room);
        if (!text) {
            e->failed = 1;
            return;
        }
        e->text = text;
        e->room = room;
    }
    memcpy(e->text + e->length, s, n);
    e->length += n;
    e->text[e->length] = 0;
}

static inline void conform_puts(conform_event *e, const char *s) { conform_put(e, s, strlen(s)); }

/* How many bytes of UTF-8 begin here, 0 if none do. */
static inline size_t conform_utf8(const unsigned char *s) {
    size_t n = s[0] < 0x80 ? 1 : s[0] >= 0xc2 && s[0] < 0xe0 ? 2 : s[0] >= 0xe0 && s[0] < 0xf0 ? 3 : s[0] >= 0xf0 && s[0] < 0xf5 ? 4 : 0;
    for (size_t i = 1; i < n; i++)
        if ((s[i] & 0xc0) != 0x80) return 0;
    if (n == 3 && ((s[0] == 0xe0 && s[1] < 0xa0) || (s[0] == 0xed && s[1] > 0x9f))) return 0;
    if (n == 4 && ((s[0] == 0xf0 && s[1] < 0x90) || (s[0] == 0xf4 && s[1] > 0x8f))) return 0;
    return n;
}

/* A JSON string; what is no UTF-8 becomes U+FFFD. */
static inline void conform_quote(conform_event *e, const char *s) {
    const unsigned char *p = (const unsigned char *)s;
    char hex[8];
    conform_puts(e, "\"");
    while (*p) {
        size_t n = conform_utf8(p);
        if (n == 0) {
            conform_puts(e, "\\ufffd");
            n = 1;
        } else if (*p == '"' || *p == '\\') {
            conform_puts(e, "\\");
            conform_put(e, (const char *)p, 1);
        } else if (*p < 0x20) {
            snprintf(hex, sizeof hex, "\\u%04x", *p);
            conform_puts(e, hex);
        } else {
            conform_put(e, (const char *)p, n);
        }
        p += n;
    }
    conform_puts(e, "\"");
}

static inline void conform_key(conform_event *e, const char *key) {
    conform_puts(e, ",");
    conform_quote(e, key);
    conform_puts(e, ":");
}

/* A new event of a kind, such as "alloc". */
static inline conform_event conform_new(const char *kind) {
    conform_event e = {NULL, 0, 0, 0};
    conform_key(&e, "k");
    conform_quote(&e, kind);
    return e;
}

/* One field. A value that is not there is left out: no field of a trace is null. */
static inline void conform_text(conform_event *e, const char *key, const char *value) {
    if (!value) return;
    conform_key(e, key);
    conform_quote(e, value);
}

static inline void conform_number(conform_event *e, const char *key, int64_t value) {
    char digits[24];
    conform_key(e, key);
    snprintf(digits, sizeof digits, "%" PRId64, value);
    conform_puts(e, digits);
}

static inline void conform_bool(conform_event *e, const char *key, int value) {
    conform_key(e, key);
    conform_puts(e, value ? "true" : "false");
}

/* A list of texts, such as the accesses that a completion speaks of. */
static inline void conform_texts(conform_event *e, const char *key, const char *const *values, size_t n) {
    conform_key(e, key);
    conform_puts(e, "[");
    for (size_t i = 0; i < n; i++) {
        if (i) conform_puts(e, ",");
        conform_quote(e, values[i]);
    }
    conform_puts(e, "]");
}

/* Block numbers; runs of them, in the order given, become pairs. */
static inline void conform_blocks(conform_event *e, const char *key, const int64_t *blocks, size_t n) {
    char digits[56];
    conform_key(e, key);
    conform_puts(e, "[");
    for (size_t i = 0, j; i < n; i = j) {
        for (j = i + 1; j < n && blocks[j] == blocks[j - 1] + 1;) j++;
        if (j - i > 1)
            snprintf(digits, sizeof digits, "%s[%" PRId64 ",%" PRId64 "]", i ? "," : "", blocks[i], blocks[j - 1]);
        else
            snprintf(digits, sizeof digits, "%s%" PRId64, i ? "," : "", blocks[i]);
        conform_puts(e, digits);
    }
    conform_puts(e, "]");
}

/* Now, in nanoseconds, on the clock of every source of this machine since its start. */
static inline int64_t conform_now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

/* What the calling thread is called in the trace, "main" if it never says. No two
 * threads of a source may share a name. NULL asks. */
static inline const char *conform_thread(const char *name) {
    static __thread char mine[64];
    if (name) snprintf(mine, sizeof mine, "%s", name);
    return mine[0] ? mine : "main";
}

static inline int conform_write(int fd, const char *data, size_t n) {
    while (n > 0) {
        ssize_t done = write(fd, data, n);
        if (done < 0 && errno == EINTR) continue;
        if (done <= 0) return -1;
        data += done;
        n -= (size_t)done;
    }
    return 0;
}

/* Take off what was written of a line that failed, and the end of the last good one. */
static inline void conform_tear(conform_source *s) {
    if (ftruncate(s->fd, s->size > 2 ? s->size - 2 : 0) == 0) {
        s->torn = s->size > 0;
        s->dirty = 0;
    }
}

/* Open the source src: the file FOLDER/SRC.jsonl, which must be new. NULL on failure, with
 * errno. A restarted process is a new source with a new name. */
static inline conform_source *conform_open(const char *folder, const char *src) {
    conform_source *s = (conform_source *)calloc(1, sizeof *s);
    conform_event head = {NULL, 0, 0, 0}, path = {NULL, 0, 0, 0};
    conform_puts(&head, "{\"src\":");
    conform_quote(&head, src);
    conform_puts(&head, ",\"seq\":");
    conform_puts(&path, folder);
    conform_puts(&path, "/");
    conform_puts(&path, src);
    conform_puts(&path, ".jsonl");
    if (!s || head.failed || path.failed) {
        free(s), free(head.text), free(path.text);
        errno = ENOMEM;
        return NULL;
    }
    s->fd = open(path.text, O_WRONLY | O_CREAT | O_EXCL | O_APPEND | O_CLOEXEC, 0644);
    free(path.text);
    if (s->fd < 0) {
        int why = errno;
        free(s), free(head.text);
        errno = why;
        return NULL;
    }
    s->head = head.text;
    pthread_mutex_init(&s->lock, NULL);
    conform_sha256_start(&s->sum);
    return s;
}

/* Write one line; the lock is held. since is 0 for an event of this moment. */
static inline int conform_line(conform_source *s, const char *body, int64_t since) {
    conform_event line = {NULL, 0, 0, 0};
    char numbers[96];
    int64_t now = conform_now();
    if (s->dirty) conform_tear(s);
    if (s->torn) conform_puts(&line, "}\n");
    size_t start = line.length;
    conform_puts(&line, s->head);
    if (since)
        snprintf(numbers, sizeof numbers, "%" PRIu64 ",\"t\":%" PRId64 ",\"t2\":%" PRId64 ",\"th\":", s->seq, since, now);
    else
        snprintf(numbers, sizeof numbers, "%" PRIu64 ",\"t\":%" PRId64 ",\"th\":", s->seq, now);
    conform_puts(&line, numbers);
    conform_quote(&line, conform_thread(NULL));
    conform_puts(&line, body);
    conform_puts(&line, "}\n");
    int bad = line.failed || s->dirty;
    if (!bad && conform_write(s->fd, line.text, line.length) != 0) {
        bad = s->dirty = 1;
        conform_tear(s);
    }
    if (!bad) {
        s->torn = 0;
        s->seq++;
        s->size += (off_t)(line.length - start);
        conform_sha256_add(&s->sum, line.text + start, line.length - start);
    }
    free(line.text);
    return bad;
}

/* Say how much was lost, if any; the lock is held. */
static inline int conform_losses(conform_source *s) {
    if (!s->lost) return 0;
    conform_event e = conform_new("lost");
    conform_number(&e, "count", (int64_t)s->lost);
    int bad = e.failed || conform_line(s, e.text, 0);
    if (!bad) s->lost = 0;
    free(e.text);
    return bad;
}

/* Record an event that took effect between since (of conform_now) and this call. */
static inline void conform_record_since(conform_source *s, conform_event *e, int64_t since) {
    pthread_mutex_lock(&s->lock);
    if (!s->sealed && (conform_losses(s) || e->failed || conform_line(s, e->text, since))) s->lost++;
    pthread_mutex_unlock(&s->lock);
    free(e->text);
    memset(e, 0, sizeof *e);
}

/* Record an event of this moment. */
static inline void conform_record(conform_source *s, conform_event *e) { conform_record_since(s, e, 0); }

/* End the source in good order: nothing was lost, and this is its last line. What is
 * recorded later is dropped. */
static inline void conform_seal(conform_source *s) {
    char sum[72];
    pthread_mutex_lock(&s->lock);
    if (!s->sealed && !conform_losses(s)) {
        conform_event e = conform_new("seal");
        conform_number(&e, "events", (int64_t)s->seq);
        conform_sha256_end(s->sum, sum);
        conform_text(&e, "sum", sum);
        if (!e.failed) (void)conform_line(s, e.text, 0);
        free(e.text);
    }
    if (!s->sealed) close(s->fd);
    s->sealed = 1;
    pthread_mutex_unlock(&s->lock);
}

#ifdef __cplusplus
}
#endif

#endif
