// One nftables transaction, written by hand: can this network namespace redirect connections?
#pragma once

namespace cofferdam::os {

// Loads a table with a nat chain at the output hook and a redirect rule into the network namespace
// of the calling process; 0 or the errno. Called in a namespace that is thrown away.
int load_redirect_probe();

}  // namespace cofferdam::os
