// A mock OpenAI-compatible engine for measuring gateways: one epoll thread, over 100,000 unary requests/s.
// POST with "stream":true -> CHUNKS server-sent events, one per TICK_US; any other POST -> a canned
// completion. GET /metrics -> vLLM gauges and speculative counters (K = 4); GET /stats ->
// {"reqs","active","aborted"}: aborted counts streams the client left early. Build: cc -O2 -o mock_upstream
// mock_upstream.c    Run: ./mock_upstream PORT [CHUNKS=100] [TICK_US=10000]
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/timerfd.h>
#include <time.h>
#include <unistd.h>
#define MAXFD 20000
typedef struct {
  char buf[65536];
  int len;
  int streaming;
  int left;
} C;
static C *cs[MAXFD];
static int nchunks = 100, tick_us = 10000;
static int act[MAXFD], nact = 0;
static unsigned long reqs = 0, aborted = 0;
static const char *JSON = "{\"id\":\"chatcmpl-1\",\"object\":\"chat.completion\",\"created\":1,\"model\":"
                          "\"m\",\"choices\":[{\"index\":0,\"message\":{\"role\":\"assistant\",\"content\":"
                          "\"Hello there, this is a canned response of a mock "
                          "engine.\"},\"finish_reason\":\"stop\"}],\"usage\":{\"prompt_tokens\":10,"
                          "\"completion_tokens\":12,\"total_tokens\":22}}";
static char chunk[1024];
static int chunklen;
static void sendall(int fd, const char *b, int n) {
  int o = 0;
  while (o < n) {
    int r = send(fd, b + o, n - o, MSG_NOSIGNAL);
    if (r <= 0) {
      if (errno == EAGAIN)
        continue;
      return;
    }
    o += r;
  }
}
static void rmact(int fd) {
  for (int i = 0; i < nact; i++)
    if (act[i] == fd) {
      act[i] = act[--nact];
      return;
    }
}
static void closec(int fd) {
  if (cs[fd]) {
    if (cs[fd]->streaming) {
      rmact(fd);
      aborted++;
    }
    free(cs[fd]);
    cs[fd] = 0;
  }
  close(fd);
}
static int handle(int fd, C *c) {
  for (;;) {
    c->buf[c->len] = 0;
    char *h = strstr(c->buf, "\r\n\r\n");
    if (!h)
      return 0;
    int hl = h - c->buf + 4;
    int cl = 0;
    char *p = strcasestr(c->buf, "content-length:");
    if (p && p < h)
      cl = atoi(p + 15);
    if (c->len < hl + cl)
      return 0;
    int isget = !strncmp(c->buf, "GET ", 4);
    int st = 0;
    if (!isget) {
      char save = c->buf[hl + cl];
      c->buf[hl + cl] = 0;
      st = strstr(c->buf + hl, "\"stream\":true") || strstr(c->buf + hl, "\"stream\": true");
      c->buf[hl + cl] = save;
    }
    char out[4096];
    int n;
    if (isget) {
      const char *body;
      char tmp[1024];
      const char *ct = "application/json";
      if (!strncmp(c->buf + 4, "/v1/models", 10))
        body = "{\"object\":\"list\",\"data\":[{\"id\":\"m\",\"object\":\"model\",\"created\":1,\"owned_by\":"
               "\"x\"}]}";
      else if (!strncmp(c->buf + 4, "/stats", 6)) {
        snprintf(tmp, 512, "{\"reqs\":%lu,\"active\":%d,\"aborted\":%lu}", reqs, nact, aborted);
        body = tmp;
      } else if (!strncmp(c->buf + 4, "/metrics", 8)) {
        ct = "text/plain; version=0.0.4";
        snprintf(tmp, 1024,
                 "vllm:num_requests_running{engine=\"0\",model_name=\"m\"} "
                 "%d\nvllm:num_requests_waiting{engine=\"0\",model_name=\"m\"} "
                 "0\nvllm:kv_cache_usage_perc{engine=\"0\",model_name=\"m\"} "
                 "0.1\nvllm:spec_decode_num_drafts_total{engine=\"0\",model_name=\"m\"} "
                 "%lu\nvllm:spec_decode_num_draft_tokens_total{engine=\"0\",model_name=\"m\"} "
                 "%lu\nvllm:spec_decode_num_accepted_tokens_total{engine=\"0\",model_name=\"m\"} "
                 "%lu\nvllm:spec_decode_num_accepted_tokens_per_pos_total{engine=\"0\",model_name=\"m\","
                 "position=\"3\"} %lu\n",
                 nact, reqs * 40, reqs * 160, reqs * 100, reqs * 15);
        body = tmp;
      } else
        body = "{\"status\":\"ok\",\"model_path\":\"m\",\"served_model_name\":\"m\"}";
      n = snprintf(out, 4096, "HTTP/1.1 200 OK\r\nContent-Type: %s\r\nContent-Length: %zu\r\n\r\n%s", ct,
                   strlen(body), body);
      sendall(fd, out, n);
    } else if (!st) {
      reqs++;
      n = snprintf(out, 4096,
                   "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %zu\r\n\r\n%s",
                   strlen(JSON), JSON);
      sendall(fd, out, n);
    } else {
      reqs++;
      n = snprintf(out, 4096,
                   "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream; charset=utf-8\r\nTransfer-Encoding: "
                   "chunked\r\n\r\n");
      sendall(fd, out, n);
      c->streaming = 1;
      c->left = nchunks;
      act[nact++] = fd;
    }
    memmove(c->buf, c->buf + hl + cl, c->len - hl - cl);
    c->len -= hl + cl;
  }
}
int main(int ac, char **av) {
  int port = atoi(av[1]);
  if (ac > 2)
    nchunks = atoi(av[2]);
  if (ac > 3)
    tick_us = atoi(av[3]);
  const char *ev = "data: "
                   "{\"id\":\"chatcmpl-90c0dc4ad3b29106\",\"object\":\"chat.completion.chunk\",\"created\":"
                   "1796019926,\"model\":\"m\",\"choices\":[{\"index\":0,\"delta\":{\"content\":\" "
                   "hello\"},\"logprobs\":null,\"finish_reason\":null}]}\n\n";
  chunklen = snprintf(chunk, 1024, "%zx\r\n%s\r\n", strlen(ev), ev);
  int ls = socket(AF_INET, SOCK_STREAM, 0), one = 1;
  setsockopt(ls, SOL_SOCKET, SO_REUSEADDR, &one, 4);
  struct sockaddr_in a = {
      .sin_family = AF_INET, .sin_port = htons(port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
  if (bind(ls, (void *)&a, sizeof a)) {
    perror("bind");
    return 1;
  }
  listen(ls, 4096);
  fcntl(ls, F_SETFL, O_NONBLOCK);
  int ep = epoll_create1(0);
  struct epoll_event e = {.events = EPOLLIN, .data.fd = ls};
  epoll_ctl(ep, EPOLL_CTL_ADD, ls, &e);
  int tf = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK);
  struct itimerspec it = {{tick_us / 1000000, (tick_us % 1000000) * 1000},
                          {tick_us / 1000000, (tick_us % 1000000) * 1000}};
  timerfd_settime(tf, 0, &it, 0);
  e.data.fd = tf;
  epoll_ctl(ep, EPOLL_CTL_ADD, tf, &e);
  struct epoll_event evs[256];
  for (;;) {
    int n = epoll_wait(ep, evs, 256, -1);
    for (int i = 0; i < n; i++) {
      int fd = evs[i].data.fd;
      if (fd == ls) {
        for (;;) {
          int c = accept4(ls, 0, 0, SOCK_NONBLOCK);
          if (c < 0)
            break;
          if (c >= MAXFD) {
            close(c);
            continue;
          }
          setsockopt(c, IPPROTO_TCP, TCP_NODELAY, &one, 4);
          cs[c] = calloc(1, sizeof(C));
          e.events = EPOLLIN;
          e.data.fd = c;
          epoll_ctl(ep, EPOLL_CTL_ADD, c, &e);
        }
      } else if (fd == tf) {
        unsigned long x;
        if (read(tf, &x, 8)) {
        }
        for (int k = 0; k < nact; k++) {
          int s = act[k];
          C *c = cs[s];
          if (c->left > 0) {
            sendall(s, chunk, chunklen);
            c->left--;
          } else {
            sendall(s, "e\r\ndata: [DONE]\n\n\r\n0\r\n\r\n", 24);
            c->streaming = 0;
            act[k] = act[--nact];
            k--;
          }
        }
      } else {
        C *c = cs[fd];
        if (!c)
          continue;
        int r = recv(fd, c->buf + c->len, sizeof(c->buf) - 1 - c->len, 0);
        if (r <= 0) {
          if (r < 0 && errno == EAGAIN)
            continue;
          closec(fd);
        } else {
          c->len += r;
          handle(fd, c);
        }
      }
    }
  }
}
