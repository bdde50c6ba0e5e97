// Holds a pod's namespaces open: waits, and buries children that nobody else does.
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

static void end(int signal) { _exit(0); }
static void bury(int signal) {
  while (waitpid(-1, NULL, WNOHANG) > 0)
    ;
}

int main(void) {
  struct sigaction ending = {.sa_handler = end};
  struct sigaction burying = {.sa_handler = bury, .sa_flags = SA_NOCLDSTOP};
  sigaction(SIGINT, &ending, NULL);
  sigaction(SIGTERM, &ending, NULL);
  sigaction(SIGCHLD, &burying, NULL);
  for (;;)
    pause();
}
