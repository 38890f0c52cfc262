// The thread that files a reference in the slot of the tick DUE, which the model defines: an insert
// or, with RESET, a reset.
#include "wheel.h"

static void *filer(void *unused) {
  u32 spare = 4;
#ifdef RESET
  reset(1, DUE, &spare);
#else
  arm_and_file(DUE, &spare);
#endif
  return unused;
}
