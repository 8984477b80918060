// Has page.html, which shows a rank to people. Thread-safety: a free function.
#ifndef SLOTWISE_SERVER_OPS_PAGE_H_
#define SLOTWISE_SERVER_OPS_PAGE_H_

#include <string_view>

namespace slotwise {

// Returns page.html. Its @NONCE@ must be replaced by the nonce that lets its script and style run.
std::string_view Page();

}  // namespace slotwise

#endif  // SLOTWISE_SERVER_OPS_PAGE_H_
