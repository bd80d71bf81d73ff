package orders

import "github.com/onlyonce-go/onlyonce/services/publicid"

// Callers see only the public IDs of orders and shipments.
var (
	orderIDs    = publicid.NewType("ord_")
	shipmentIDs = publicid.NewType("shp_")
)
