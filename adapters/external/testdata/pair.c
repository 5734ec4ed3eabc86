/* A prefill and a decode worker in one program, each with threads, recorded by the
 * header. Arguments: folder, and "lost" for a file that may not grow for a while. */
#include "conform_trace.h"

#include <signal.h>
#include <sys/resource.h>

static conform_source *open_source(const char *folder, const char *worker, const char *role) {
    conform_source *s = conform_open(folder, worker);
    if (!s) {
        perror(worker);
        exit(1);
    }
    conform_event e = conform_new("source");
    conform_text(&e, "worker", worker);
    conform_text(&e, "role", role);
    conform_text(&e, "host", "h");
    conform_text(&e, "clock", "h/boot");
    conform_text(&e, "absent", NULL);
    conform_record(s, &e);
    e = conform_new("pool");
    conform_text(&e, "pool", "kv");
    conform_number(&e, "blocks", 64);
    conform_text(&e, "what", "kv");
    conform_record(s, &e);
    return s;
}

static conform_source *prefill, *decode;

static void signal_event(conform_source *s, const char *kind, const char *sig, const char *name, const char *handoff, const char *claims, const char *access) {
    conform_event e = conform_new(kind);
    conform_text(&e, "sig", sig);
    conform_text(&e, "signal", name);
    conform_text(&e, "handoff", handoff);
    conform_text(&e, "claims", claims);
    if (access) conform_texts(&e, "access", &access, 1);
    conform_record(s, &e);
}

static void lease(conform_source *s, const char *kind, const int64_t *blocks, const char *req, const char *handoff) {
    conform_event e = conform_new(kind);
    conform_text(&e, "pool", "kv");
    conform_blocks(&e, "blocks", blocks, 4);
    conform_text(&e, "holder", req);
    conform_text(&e, "req", req);
    conform_text(&e, "handoff", handoff);
    if (!strcmp(kind, "free")) conform_text(&e, "why", "done");
    conform_record(s, &e);
}

static void *serve(void *arg) {
    int n = (int)(intptr_t)arg;
    char name[32], req[32], handoff[32], grant[48], done[48], access[48];
    snprintf(name, sizeof name, "t%d", n);
    conform_thread(name);
    for (int i = 0; i < 20; i++) {
        int64_t b = 8 * n, blocks[4] = {b, b + 1, b + 2, b + 5};
        snprintf(req, sizeof req, "r\"%d\n%d\xff", n, i);
        snprintf(handoff, sizeof handoff, "room-%d-%d", n, i);
        snprintf(grant, sizeof grant, "g-%d-%d", n, i);
        snprintf(done, sizeof done, "d-%d-%d", n, i);
        snprintf(access, sizeof access, "a-%d-%d", n, i);
        lease(decode, "alloc", blocks, req, handoff);
        conform_event e = conform_new("grant");
        conform_text(&e, "pool", "kv");
        conform_blocks(&e, "blocks", blocks, 4);
        conform_text(&e, "handoff", handoff);
        conform_text(&e, "to", "prefill-0");
        conform_text(&e, "mode", "w");
        conform_record(decode, &e);
        signal_event(decode, "emit", grant, "METADATA", handoff, NULL, NULL);
        signal_event(prefill, "observe", grant, "METADATA", handoff, NULL, NULL);
        e = conform_new("begin");
        conform_text(&e, "access", access);
        conform_text(&e, "mode", "w");
        conform_text(&e, "target", "decode-0");
        conform_text(&e, "pool", "kv");
        conform_blocks(&e, "blocks", blocks, 4);
        conform_text(&e, "handoff", handoff);
        conform_record(prefill, &e);
        int64_t since = conform_now();
        e = conform_new("end");
        conform_text(&e, "access", access);
        conform_bool(&e, "ok", 1);
        conform_record_since(prefill, &e, since);
        signal_event(prefill, "emit", done, "STATUS", handoff, "completed", access);
        signal_event(decode, "observe", done, "STATUS", handoff, NULL, NULL);
        lease(decode, "free", blocks, req, handoff);
    }
    return NULL;
}

int main(int argc, char **argv) {
    pthread_t threads[4];
    prefill = open_source(argv[1], "prefill-0", "prefill");
    decode = open_source(argv[1], "decode-0", "decode");
    if (argc > 2) { /* a disk that is full for a while */
        struct rlimit was, small;
        signal(SIGXFSZ, SIG_IGN);
        getrlimit(RLIMIT_FSIZE, &was);
        small = was;
        small.rlim_cur = (rlim_t)decode->size + 30;
        setrlimit(RLIMIT_FSIZE, &small);
        for (int i = 0; i < 3; i++) {
            conform_event e = conform_new("note");
            conform_text(&e, "text", "a note that has no room, whatever it may say at length");
            conform_record(decode, &e);
        }
        if (strcmp(argv[2], "lost")) return 0;
        setrlimit(RLIMIT_FSIZE, &was);
    }
    for (intptr_t i = 0; i < 4; i++) pthread_create(&threads[i], NULL, serve, (void *)i);
    for (int i = 0; i < 4; i++) pthread_join(threads[i], NULL);
    conform_seal(prefill);
    conform_seal(decode);
    conform_seal(decode);
    conform_event late = conform_new("note");
    conform_text(&late, "text", "too late");
    conform_record(decode, &late);
    return 0;
}
