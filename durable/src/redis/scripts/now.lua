-- The store's clock. Changes nothing.
--
-- answers the time, in milliseconds

return present()
